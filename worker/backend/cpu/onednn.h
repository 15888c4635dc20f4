// Parts of oneDNN that several ops share. Included only inside worker/backend/cpu.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <unordered_map>

#include "worker/backend/cpu/team.h"

namespace muster::cpu {

// One engine and one stream for all ops of a backend. Execution on a CPU stream is synchronous.
struct OneDnn {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};

  void Run(const dnnl::primitive& primitive,
           const std::unordered_map<int, dnnl::memory>& arguments) {
    primitive.execute(stream, arguments);
    AfterForeignRegion();
  }
  void Run(dnnl::reorder& reorder, dnnl::memory& from, dnnl::memory& to) {
    reorder.execute(stream, from, to);
    AfterForeignRegion();
  }
};

// Divides an op's scratch area, which all ops use in turn, into parts.
class ScratchLayout {
 public:
  // Reserves `bytes` bytes. Returns their offset in floats, which is a multiple of 64 bytes.
  size_t Add(size_t bytes);
  size_t floats() const { return floats_; }

 private:
  size_t floats_ = 0;
};

// A tensor that a primitive reads or writes. Outside it has the caller's layout, inside the
// primitive's. If the layouts differ, there is a copy in scratch.
class StagedTensor {
 public:
  StagedTensor() = default;
  StagedTensor(const OneDnn& dnn, const dnnl::memory::desc& outside,
               const dnnl::memory::desc& inside, ScratchLayout& layout);

  // The memory to pass to the primitive.
  const dnnl::memory& inside() const { return inside_; }
  bool staged() const { return staged_; }

  void Bind(const void* address, void* scratch);
  void CopyIn(OneDnn& dnn);   // before the primitive reads it
  void CopyOut(OneDnn& dnn);  // after the primitive has written it

 private:
  bool staged_ = false;
  size_t offset_ = 0;
  dnnl::memory outside_, inside_;
  dnnl::reorder in_, out_;
};

// A primitive with its arguments and its scratchpad.
class Primitive {
 public:
  Primitive() = default;
  // `scratchpad` comes from the primitive's descriptor, which was made with UserScratchpad().
  Primitive(const OneDnn& dnn, const dnnl::primitive& primitive,
            const dnnl::memory::desc& scratchpad, std::unordered_map<int, dnnl::memory> arguments,
            ScratchLayout& layout);
  void Execute(OneDnn& dnn, void* scratch);

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  dnnl::memory scratchpad_;
  size_t offset_ = 0;
  bool has_scratchpad_ = false;
};

// Attributes for a scratchpad owned by the caller, optionally with a final relu that propagates
// NaN.
dnnl::primitive_attr UserScratchpad(bool relu = false);

// Returns a memory object without an address.
dnnl::memory Unbound(const OneDnn& dnn, const dnnl::memory::desc& desc);
inline void SetAddress(dnnl::memory& memory, const void* address) {
  memory.set_data_handle(const_cast<void*>(address));
}

// True for oneDNN's reference loops, which are hundreds of times slower than other kernels.
bool IsReference(const char* implementation);

}  // namespace muster::cpu
