// Puts the comparison together.
readLink();
start(() => {
  setUpNetworks(); setUpPairNames(); setUpHeadMaps(); setUpLayers(); setUpLayerPlan(); setUpChanges();
  setUpMeasures(); setUpPatterns(); setUpSpectra(); setUpEntropies(); setUpTrees(); setUpNotCompared(); setUpPanel(); setUpSideSearch();
  const networks = data.sources.length > 2 ? [["networks", "Networks"]] : [];
  setUpNavigation([["findings", "Findings"], ...networks, ["maps", "Heads"], ["layers", "Layers"], ["heads", "Changes"], ["measures", "Measures"], ["patterns", "Patterns"], ["spectra", "Spectra"], ["trees", "Trees"], ["not-compared", "Not compared"], ["about", "About"]]);
});
