"""The page itself: nothing in it knows Sticky."""

import os

import streamlit as st

st.title("A count of your own")
st.session_state.setdefault("count", 0)
if st.button("Count"):
    st.session_state.count += 1
st.write(f"You have counted to {st.session_state.count}.")
st.caption(f"container {os.environ.get('STICKY_CONTAINER_ID', 'none')}")
