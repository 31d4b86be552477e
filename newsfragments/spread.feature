The default placement `spread` shares sessions evenly among as many containers as the demand asks for, so that the others run
empty and are stopped: about half the container-hours of before while load falls; see docs/scaling.md.
