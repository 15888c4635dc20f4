// `muster data whiten`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "proto/config_fwd.h"
#include "worker/data/dataset.h"

namespace muster {

struct WhitenArguments {
  std::string config_path;
  std::vector<Setting> settings;
  std::string output;
  std::string layer;  // empty: the first convolution
  int64_t samples = 5000;
  double epsilon = 5e-4;
};

// Computes weights for a convolution of the images from the training set, and writes them to a
// file. Returns the exit code.
int RunWhiten(const WhitenArguments& arguments);

// A symmetric matrix's eigenvalues in descending order, and its eigenvectors: row i belongs to
// value i, has length 1, and its largest element is positive. Row-major; by Jacobi's method.
struct Eigen {
  std::vector<double> values, vectors;
};
Eigen EigenOf(std::vector<double> matrix, size_t order);

// The covariance of the patches of height x width pixels in `samples` training samples, evenly
// spaced, as an evaluation sees them. If there are many patches, only some count. The order of a
// patch is [channel][row][column].
std::vector<double> PatchCovariance(const Dataset& set, const config::Data& data, int64_t height,
                                    int64_t width, int64_t samples);

}  // namespace muster
