def fastest(model, sample, paths): return model
