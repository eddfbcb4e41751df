# SPDX-License-Identifier: Apache-2.0
"""Models by name: the class of their configuration in transformers and its arguments."""
MODELS = {
    "gpt2": ("GPT2Config", dict(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)),
    "llama1b": ("LlamaConfig", dict(num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
                                    num_key_value_heads=8, vocab_size=128256, head_dim=64, max_position_embeddings=4096,
                                    rope_theta=500000.0, tie_word_embeddings=True)),
}
