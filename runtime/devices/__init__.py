"""Devices: how a step program is bound to hardware.  The only part of the runtime that imports a kernel room."""
