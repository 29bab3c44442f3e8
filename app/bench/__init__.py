"""`tandem bench`: flags, formats, charts; what is measured, and how, is runtime.benchmark's business."""
