"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860): relative attention, a memory of earlier segments.

``headscape.load_model`` loads folders in the layout of the published ``transfo-xl-wt103``; a model of one's own is
``headscape.models.transformer_xl.model.TransfoXLLMHeadModel(TransfoXLConfig(...))``.
"""
