"""Trees, tree EMD, questionnaire, diffusion maps (OA 2.3)."""
