"""What is measured with the apps on a machine: times, which device suits which, predictions, sharing."""
