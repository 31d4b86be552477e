Arguments and values of hundreds of megabytes take 40 % less processor time and a third less memory.
