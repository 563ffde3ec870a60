"""The library on other cores, by execution: one program under QEMU and on this machine, one SHA-256."""
