#include "cli/data/whiten_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "cli/data/normalization.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/model/torch_tensors.h"
#include "common/tensors/safetensors_reader.h"
#include "common/tensors/safetensors_writer.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr int kMostSweeps = 100;
constexpr size_t kLargestOrder = 1024;
constexpr double kMostProducts = 1e11;  // half a minute

// A rotation of rows and columns p and q that makes element (p, q) zero.
void Rotate(std::vector<double>& matrix, std::vector<double>& vectors, size_t order, size_t p,
            size_t q) {
  const double off = matrix[p * order + q];
  if (off == 0) return;
  const double theta = (matrix[q * order + q] - matrix[p * order + p]) / (2 * off);
  const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  const auto turn = [&](double& a, double& b) {
    const double old = a;
    a = c * old - s * b;
    b = s * old + c * b;
  };
  for (size_t i = 0; i < order; ++i) turn(matrix[i * order + p], matrix[i * order + q]);
  for (size_t i = 0; i < order; ++i) turn(matrix[p * order + i], matrix[q * order + i]);
  for (size_t i = 0; i < order; ++i) turn(vectors[p * order + i], vectors[q * order + i]);
}

double SquaresOffDiagonal(const std::vector<double>& matrix, size_t order) {
  double sum = 0;
  for (size_t p = 0; p < order; ++p) {
    for (size_t q = 0; q < order; ++q) sum += p == q ? 0 : std::pow(matrix[p * order + q], 2);
  }
  return sum;
}

const Layer& FindLayer(const Graph& graph, const std::string& name) {
  for (const Layer& layer : graph.layers()) {
    if (name.empty() ? layer.kind == "conv2d" : layer.name == name) {
      const bool reads_images = layer.inputs.size() == 1 && layer.inputs[0] == Layer::kData;
      if (layer.kind == "conv2d" && reads_images) return layer;
      throw Error(ExitCode::kUsage,
                  "layer {} is a {} that reads {}: expected a conv2d that reads \"data\"",
                  layer.name, layer.kind, reads_images ? "\"data\"" : "other layers");
    }
  }
  throw Error(ExitCode::kUsage, "the network has no {}",
              name.empty() ? "conv2d" : "layer \"" + name + "\"");
}

// Each eigenvector, divided by the deviation along it, and then its negative.
std::vector<float> WhiteningFilters(const Eigen& eigen, size_t order, double epsilon) {
  std::vector<float> filters(2 * order * order);
  for (size_t i = 0; i < order; ++i) {
    const double scale = 1 / std::sqrt(std::max(0.0, eigen.values[i]) + epsilon);
    for (size_t j = 0; j < order; ++j) {
      const auto x = static_cast<float>(scale * eigen.vectors[i * order + j]);
      filters[i * order + j] = x;
      filters[(order + i) * order + j] = -x;
    }
  }
  return filters;
}

}  // namespace

Eigen EigenOf(std::vector<double> matrix, size_t order) {
  std::vector<double> vectors(order * order);
  for (size_t i = 0; i < order; ++i) vectors[i * order + i] = 1;
  double trace = 0;
  for (size_t i = 0; i < order; ++i) trace += std::abs(matrix[i * order + i]);
  // Sweeps converge quadratically; after this, rotations change nothing in double precision.
  const double enough = std::pow(1e-17 * trace, 2);
  for (int i = 0; i < kMostSweeps && SquaresOffDiagonal(matrix, order) > enough; ++i) {
    for (size_t p = 0; p < order; ++p) {
      for (size_t q = p + 1; q < order; ++q) Rotate(matrix, vectors, order, p, q);
    }
  }
  std::vector<size_t> by_value(order);
  std::iota(by_value.begin(), by_value.end(), size_t{0});
  std::ranges::stable_sort(
      by_value, [&](size_t a, size_t b) { return matrix[a * order + a] > matrix[b * order + b]; });
  Eigen eigen;
  for (const size_t i : by_value) {
    eigen.values.push_back(matrix[i * order + i]);
    const auto row = vectors.begin() + static_cast<std::ptrdiff_t>(i * order);
    const auto end = row + static_cast<std::ptrdiff_t>(order);
    const double largest =
        *std::max_element(row, end, [](double a, double b) { return std::abs(a) < std::abs(b); });
    std::transform(row, end, std::back_inserter(eigen.vectors),
                   [&](double x) { return largest < 0 ? -x : x; });
  }
  return eigen;
}

std::vector<double> PatchCovariance(const Dataset& set, const config::Data& data, int64_t height,
                                    int64_t width, int64_t samples) {
  const std::unique_ptr<SampleLoader> loader = set.MakeLoader(data);
  const std::unique_ptr<LoaderScratch> scratch = loader->MakeScratch();
  const Shape shape = loader->shape();
  const auto order = static_cast<size_t>(shape.channels * height * width);
  std::vector<float> image(static_cast<size_t>(shape.elements()));
  std::vector<double> patch(order), sum(order), products(order * order);
  const auto take = [&](int64_t top, int64_t left) {
    size_t at = 0;
    for (int64_t channel = 0; channel < shape.channels; ++channel) {
      for (int64_t y = top; y < top + height; ++y) {
        for (int64_t x = left; x < left + width; ++x) {
          patch[at++] =
              image[static_cast<size_t>((y * shape.width + x) * shape.channels + channel)];
        }
      }
    }
    for (size_t i = 0; i < order; ++i) {
      sum[i] += patch[i];
      for (size_t j = 0; j <= i; ++j) products[i * order + j] += patch[i] * patch[j];
    }
  };
  const int64_t measured = std::min(samples, set.size());
  const double products_of_all = static_cast<double>(measured) *
                                 static_cast<double>(shape.height * shape.width) *
                                 static_cast<double>(order * order) / 2;
  const auto stride = static_cast<int64_t>(std::ceil(std::sqrt(products_of_all / kMostProducts)));
  int64_t patches = 0;
  for (int64_t i = 0; i < measured; ++i) {
    // The set may be in the order of its classes.
    loader->Evaluate(i * set.size() / measured, *scratch, image.data());
    for (int64_t top = 0; top + height <= shape.height; top += stride) {
      for (int64_t left = 0; left + width <= shape.width; left += stride, ++patches) {
        take(top, left);
      }
    }
  }
  const auto count = static_cast<double>(patches);
  for (size_t i = 0; i < order; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double covariance = products[i * order + j] / count - sum[i] / count * (sum[j] / count);
      products[i * order + j] = products[j * order + i] = covariance;
    }
  }
  return products;
}

int RunWhiten(const WhitenArguments& arguments) {
  config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  PrintResult(MeasureNormalization(config));
  const Datasets sets = OpenDatasets(config.data(), config.run().seed());
  const Graph graph = BuildGraph(config.model(), sets.train->MakeLoader(config.data())->shape());
  const Layer& layer = FindLayer(graph, arguments.layer);
  const auto& conv = std::get<Conv2dSpec>(layer.spec);
  const int64_t numbers = layer.input_shape.channels * conv.kernel_height * conv.kernel_width;
  const auto order = static_cast<size_t>(numbers);
  if (conv.groups != 1 || order > kLargestOrder || conv.filters != 2 * numbers) {
    throw Error(ExitCode::kUsage,
                "layer {}: whitening has two filters for each of the {} numbers of a patch: "
                "expected filters: {} and groups: 1, with at most {} numbers, found filters: {} "
                "and groups: {}",
                layer.name, numbers, 2 * numbers, kLargestOrder, conv.filters, conv.groups);
  }
  if (std::filesystem::exists(arguments.output)) {  // replace weights, but nothing else
    try {
      (void)SafetensorsReader(arguments.output);
    } catch (const Error&) {
      throw Error(ExitCode::kUsage,
                  "--output {}: this file exists and has no weights, so it is not replaced",
                  arguments.output);
    }
  }
  const Eigen eigen = EigenOf(PatchCovariance(*sets.train, config.data(), conv.kernel_height,
                                              conv.kernel_width, arguments.samples),
                              order);
  const std::vector<float> filters = WhiteningFilters(eigen, order, arguments.epsilon);
  const TorchTensors torch(graph);
  const auto tensor = std::ranges::find(torch.tensors(), layer.weights, &TorchTensor::variable);
  SafetensorsWriter writer(arguments.output, {.tensors = {{.name = tensor->name(),
                                                           .type = TensorType::kF32,
                                                           .shape = tensor->shape(),
                                                           .end = filters.size() * sizeof(float)}},
                                              .metadata = {}});
  writer.Write(std::as_bytes(std::span(filters)));
  writer.Commit();
  PrintResult(fmt::format(
      "wrote {}: {} from {}; use it with run {{ initial_weights: \"{}\" skip_mismatched: true }}",
      arguments.output, tensor->name(),
      Plural(std::min(arguments.samples, sets.train->size()), "sample"), arguments.output));
  return 0;
}

}  // namespace muster
