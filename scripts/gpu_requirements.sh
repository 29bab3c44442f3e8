#!/bin/sh
# Says which pinned file this machine's NVIDIA card needs; says nothing where there is none.
#
# Knows the driver's own answers only. CUDA 13 takes a card of compute capability 7.5 (RTX 20) with driver 580;
# anything older gets CUDA 12. GPU=0 declines.
cd "$(dirname "$0")/.." || exit 1
[ "${GPU:-}" = 0 ] && exit 0

# One line a card: "580.65.06, 8.6". A driver without the tool tells its version alone.
cards=$(nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>/dev/null)
if [ -z "$cards" ] && [ -r /proc/driver/nvidia/version ]; then
    cards=$(sed -n 's/^NVRM version:.* \([0-9][0-9.]*\)  .*$/\1, 7.5/p' /proc/driver/nvidia/version)
fi
[ -n "$cards" ] || exit 0
echo "$cards" | awk -F ', *' '
    { if ($1 + 0 < 580 || $2 + 0 < 7.5) old = 1 }
    END { print old ? "requirements-gpu-cu12.txt" : "requirements-gpu.txt" }'
