"""Writers of workloads: SWF and the job file."""
