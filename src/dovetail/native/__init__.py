"""What is compiled when the package is built, where a C compiler is: absent otherwise, and never waited for."""
