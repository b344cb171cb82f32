"""What is compiled when the package is built, where a C compiler is; nobody ever waits for it."""
