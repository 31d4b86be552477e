The interpreter of `python=` need not have Sticky installed any more: a bare virtual environment will do.
