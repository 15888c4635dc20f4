// A copy of a run's tensors as they lie in a checkpoint's file, in memory that is made, and
// touched, before the first one: to fill it costs one pass over the weights, the optimizer's state
// and the average.
//
// Owner: the server's Checkpoints. Filled by the pool's threads; read by the writer's thread when
// the last job is done.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/graph/variable_layout.h"
#include "common/tensors/safetensors_header.h"

namespace muster {

// The tensors of a checkpoint: "weights.conv1/weights", "optimizer_state_0.conv1/weights", …, a
// whole arena after the other, without the padding between variables.
std::vector<StoredTensor> CheckpointTensors(const VariableLayout& layout,
                                            const std::vector<std::string>& arenas);

class TensorImage {
 public:
  // Files are written in multiples of this, past the system's cache where that is possible.
  static constexpr size_t kBlock = 4096;

  // Has room for so many arenas.
  TensorImage(const VariableLayout& layout, size_t arenas);

  // Independent jobs that copy the arenas, which must not change before the last one is done.
  std::vector<std::function<void()>> CopyJobs(const std::vector<std::span<const float>>& arenas);

  size_t bytes() const { return bytes_; }
  // The bytes of a tensor of CheckpointTensors, which says where they lie.
  std::span<const std::byte> Tensor(const StoredTensor& tensor) const;
  // All of it, with zeros up to a multiple of kBlock.
  std::span<const std::byte> blocks() const { return {data_.get(), padded_}; }

 private:
  struct Piece {
    size_t arena;
    size_t from;       // in floats, in the arena
    size_t to, count;  // in floats, in the image
  };
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  size_t bytes_ = 0, padded_ = 0;
  std::unique_ptr<std::byte, Free> data_;
  std::vector<std::vector<Piece>> jobs_;
};

}  // namespace muster
