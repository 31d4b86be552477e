A container is started by a few lines of C where a compiler was there at installation, instead of by an interpreter: twenty at once are ready in a fraction of the time.
