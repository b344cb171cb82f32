"""When jobs start: distributions of run times, roll-outs of the queue, intervals that hold."""
