"""What is compiled when the package is built, where a C compiler is; no command ever waits for it."""
