// The helper's end of the connection to a program that trains its own model (messages.h).
//
// Used on one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/shared_memory.h"
#include "common/program/messages.h"
#include "proto/wire.pb.h"

namespace muster {

// What a program presents before it joins.
struct ProgramDescription {
  program::Join join{};
  google::protobuf::RepeatedPtrField<wire::VariableShape> variables;
  std::string optimizer;   // empty: the config's
  std::string arithmetic;  // empty: it says nothing
};

class ProgramLink {
 public:
  // Until StopWatching, another thread watches `fd` and the process `program`, and ends this
  // process when the program has ended.
  ProgramLink(UniqueFd fd, pid_t program);
  // Without this thread, the calls below throw Error(kPeerFailed) when the process has ended, and
  // Error(kDeadline) if it is silent for longer than the limit.
  struct Unwatched {};
  ProgramLink(UniqueFd fd, pid_t program, Unwatched);
  ~ProgramLink();
  ProgramLink(const ProgramLink&) = delete;

  // Reads up to Join. Throws Error(kUsage) if the program's library is of another build.
  ProgramDescription ReadDescription();
  // Maps the memory that came with Join. Throws Error(kFailure) unless it holds two buffers of
  // `floats`.
  void MapMemory(size_t floats);
  std::span<float> weights() const { return memory_.writable_floats().first(floats_); }
  std::span<float> gradient() const { return memory_.writable_floats().subspan(floats_, floats_); }

  struct Received {
    program::Kind kind;
    std::string body;
    // The body as a message. Throws Error(kPeerFailed) if it has another size.
    template <typename Message>
    Message As() const;
    // The message that the body begins with; sets `text` to the rest. Throws if it is too short.
    template <typename Message>
    Message Begin(std::string& text) const;
    // The body as numbers.
    std::vector<uint64_t> Numbers() const;
  };
  // The limit of the following calls.
  void Limit(double seconds);
  // Throws Error(kPeerFailed) if the program sends nonsense.
  Received Receive();
  // Whether Receive need not wait for the program to begin a frame. Waits at most `patience`; a
  // process that has ended counts as input.
  bool HasInput(std::chrono::milliseconds patience = {}) const;
  void Send(program::Kind kind, const void* message, size_t bytes,
            std::span<const int64_t> indices = {}, const std::string& text = "");
  // Throws Error(kDeadline): the program has not answered within the limit.
  [[noreturn]] void Silent() const;
  // From now on this process may outlive the program.
  void StopWatching();

 private:
  bool Read(void* to, size_t bytes);
  void Write(const void* from, size_t bytes);
  [[noreturn]] void Gone();

  bool AwaitBytes() const;

  const UniqueFd fd_;
  UniqueFd stop_, memory_fd_;
  UniqueFd process_;  // with Unwatched
  double limit_s_ = 0;
  SharedMemory memory_;
  size_t floats_ = 0;
  std::thread watch_;
};

}  // namespace muster
