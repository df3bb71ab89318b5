"""One short function per experiment: parameters in, records out. The notebooks call them."""
