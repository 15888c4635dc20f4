// A copy of a run's tensors in the layout of a checkpoint file. Its memory is allocated and touched
// once, so filling it costs one pass over weights, optimizer state and average.
//
// Owner: the server's Checkpoints. The pool fills it; the writer thread reads it after the last
// job.
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

// The tensors of a checkpoint: "weights.conv1/weights", "optimizer_state_0.conv1/weights", ..., one
// whole buffer after another, without the padding between variables.
std::vector<StoredTensor> CheckpointTensors(const VariableLayout& layout,
                                            const std::vector<std::string>& arenas);

class TensorImage {
 public:
  // Files are written in multiples of this size, bypassing the page cache if possible.
  static constexpr size_t kBlock = 4096;

  // `arenas`: number of buffers to store.
  TensorImage(const VariableLayout& layout, size_t arenas);

  // Independent jobs that copy the buffers, which must not change until all jobs are done.
  std::vector<std::function<void()>> CopyJobs(const std::vector<std::span<const float>>& arenas);

  size_t bytes() const { return bytes_; }
  // The bytes of a tensor from CheckpointTensors, which stores its position.
  std::span<const std::byte> Tensor(const StoredTensor& tensor) const;
  // The whole image, zero-padded to a multiple of kBlock.
  std::span<const std::byte> blocks() const { return {data_.get(), padded_}; }

 private:
  struct Piece {
    size_t arena;
    size_t from;       // in floats, in the source buffer
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
