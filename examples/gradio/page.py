"""The page itself. Of Sticky it knows where to listen, and by which address its visitors come."""

import os

import gradio as gr


def count(so_far):
    return so_far + 1, f"You have counted to {so_far + 1}."


with gr.Blocks(title="A count of your own", analytics_enabled=False) as page:
    gr.Markdown("# A count of your own")
    so_far = gr.State(0)
    said = gr.Textbox("You have counted to 0.", label="So far", elem_id="said")
    gr.Button("Count", elem_id="count").click(count, so_far, [so_far, said])
    gr.Markdown(f"container {os.environ.get('STICKY_CONTAINER_ID', 'none')}")

page.launch(
    server_name=os.environ.get("STICKY_HOST", "127.0.0.1"),
    server_port=int(os.environ.get("PORT", "7860")),
)
