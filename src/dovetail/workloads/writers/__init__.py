"""Writers: workloads as SWF, clusters as cluster files."""
