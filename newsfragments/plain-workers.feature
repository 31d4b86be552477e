Servers without sessions work with `workers` above 1, with limits, affinity and scaling of the whole daemon; their open requests and
WebSockets outlive a `sticky restart` and go on counting.
