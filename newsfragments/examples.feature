More examples: a chat, a notebook with an interpreter for each session, Streamlit and Gradio beyond one container.
