With `descendants = "best_effort"` a process that hides from everything but its parents is found although its container ended by itself, if it was there at the last look (every 5 seconds).
