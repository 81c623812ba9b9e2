-- Write out what filling the tables left in memory, so that it is not written during the measurement.
checkpoint
