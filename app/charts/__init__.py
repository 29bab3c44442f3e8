"""Bar charts, on the terminal and as SVG or PNG; what stands in them is the commands' business."""
