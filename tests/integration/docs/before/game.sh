cp -r "$EXAMPLES/game" game
cd game
rm -rf state
