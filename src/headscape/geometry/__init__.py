"""Trees, tree EMD, questionnaire, diffusion maps (OA 2.3, arXiv 2506.15541)."""
