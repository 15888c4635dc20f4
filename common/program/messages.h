// The messages between a program that trains its own model and its helper, `muster-worker program`.
// The client library (client/muster.cc) is the program's end. With an optimizer of
// the program's own, another copy of the program updates the weights; the server is its helper.
//
// They share memory with two buffers of all variables, each variable at a multiple of 64 bytes: the
// weights, which the helper writes between slices, and the gradient of the current slice, which
// the program writes. Over a stream socket they send frames: a Frame, then `bytes` bytes. The
// program sends variables and Join, with the memory's descriptor. From then on the program sends
// Next whenever it waits, and the helper answers each with one frame.
//
// Both ends are of the same build: the first frame says so.
#pragma once

#include <cstdint>

namespace muster::program {

// Changes with every change to this file.
inline constexpr uint32_t kVersion = 7;

// Scalars of a slice or block, and bytes of a name, of [A-Za-z0-9_./-]. The server has the same
// limits (common/plan/scalar_sums.h).
inline constexpr uint32_t kMostScalars = 32, kMostScalarName = 64;

// Bytes of the text that says what the program's bits depend on.
inline constexpr uint32_t kMostArithmeticBytes = 1024;

// Named values that are the same in all processes.
inline constexpr uint32_t kMostKeyBytes = 256, kMostValueBytes = 64 << 10;

enum class Kind : uint32_t {
  // From the program:
  kVariable,    // Variable, its dimensions as int64, its name
  kOptimizer,   // text: of the program, which then sets Loss.learning_rate
  kArithmetic,  // text: what the program's bits depend on
  kJoin,        // Join; carries the memory's descriptor
  kNext,        // empty
  kScalar,      // the sum as double, the name: of the current slice or block, before Loss
  kLoss,        // Loss: of the current slice or block
  kPushed,      // uint64 each: the gradients of these variables are written
  kDone,        // all of the current work is written; of kUpdate: the learning rate as double
  kFailed,      // text: why the program cannot go on
  kLeave,       // empty
  kPlanned,     // Planned: asks for the samples of a slice that may come later
  kState,       // a piece of the program's state, in work kSave
  kAsk,         // Ask, the key: waits for Answer. With may_save, Work of kSave may come before
  kTell,        // Tell, the key, the value
  // From the helper:
  kJoined,    // Joined
  kRestored,  // a piece of the state in the checkpoint; Joined.state_bytes in all
  kWork,      // Work, then the indices of the samples as int64
  kSamples,   // the answer to Planned: Work as if it were given, then the indices
  kAnswer,    // Answer, the value
  kEnd,       // End, then a text
};

struct Frame {
  Kind kind;
  uint32_t bytes;
};

struct Variable {
  uint32_t dimensions;
  uint32_t has_weight_decay;
  float weight_decay;
  float learning_rate_multiplier;
  uint32_t averaged;
};

struct Join {
  uint32_t version;
  uint32_t pid;
  uint64_t fingerprint;  // of data and constants; 0: none
  int64_t train_samples, validation_samples, test_samples;
  int64_t batch, epochs;  // 0: the config says them
  int32_t drop_last;      // 0 or 1; -1: the config says it
  uint32_t in_order;      // epochs are not shuffled
  int32_t loss_scaling;   // 1: wanted; 0: the config says it; -1: the program knows of none
  uint32_t unused;
};

struct Joined {
  int64_t rank;  // -1: this process updates the weights
  int64_t first_step, total_steps, steps_per_epoch, slices;
  int64_t state_bytes;
};

struct Loss {
  double loss;           // sum over the samples
  double learning_rate;  // of this step; NaN: the config sets it
  double weight;         // of the slice; NaN: it counts by its samples
};

struct Planned {
  int64_t step, index;
};

struct Ask {
  int64_t step;
  uint32_t may_compute;
  uint32_t may_save;  // of the process that updates: Work of kSave may come before the answer
};

struct Tell {
  int64_t step;
  uint32_t key_bytes, unused;
};

struct Answer {
  uint32_t kind;  // a wire::Answer::Kind
};

enum class WorkKind : uint32_t {
  kSlice,
  kStepEnd,
  kTestBlock,
  kValidationBlock,
  // Only of the process that updates the weights:
  kUpdate,  // the memory holds the mean gradient of the step; change the weights
  kSave     // send the state
};

struct Work {
  WorkKind kind;
  float loss_scale = 1;  // of kSlice
  int64_t step, epoch;
  int64_t index;    // of the slice in the step, or of the block in the set
  int64_t samples;  // of this slice or block; their indices follow
  int64_t batch;    // samples of the whole step
  uint64_t seed;    // for random numbers; a function of the run's seed, step, index and kind
};

// The run is over for this program.
struct End {
  int32_t code;               // an ExitCode; 0: the run is complete
  uint32_t has_last_weights;  // whether the memory holds the weights after the last step
  int64_t steps;              // the number of completed steps of a completed run
};

}  // namespace muster::program
