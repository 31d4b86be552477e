Ready containers are asked every ten seconds whether they still answer; one that does not is killed and replaced, and its
sessions end (`container_lost`, unhealthy).
