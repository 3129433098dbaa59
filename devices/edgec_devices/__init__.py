"""edgec_devices: the boards edgec compiles for, and the devices bundles run on."""
