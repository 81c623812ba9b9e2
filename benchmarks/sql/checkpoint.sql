-- Write out what filling the tables left in memory, so that it is not written while somebody measures.
checkpoint
