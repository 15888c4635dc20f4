#include "worker/backend/cpu/onednn.h"

#include <cstring>
#include <limits>
#include <utility>

#include "worker/backend/cpu/descriptors.h"

namespace muster::cpu {

size_t ScratchLayout::Add(size_t bytes) {
  const size_t offset = floats_;
  floats_ += (bytes + 63) / 64 * 16;
  return offset;
}

StagedTensor::StagedTensor(const OneDnn& dnn, const dnnl::memory::desc& outside,
                           const dnnl::memory::desc& inside, ScratchLayout& layout)
    : staged_(outside != inside), outside_(Unbound(dnn, outside)), inside_(outside_) {
  if (!staged_) return;
  inside_ = Unbound(dnn, inside);
  offset_ = layout.Add(inside.get_size());
  in_ = dnnl::reorder(outside_, inside_);
  out_ = dnnl::reorder(inside_, outside_);
}

void StagedTensor::Bind(const void* address, void* scratch) {
  SetAddress(outside_, address);
  if (staged_) SetAddress(inside_, static_cast<float*>(scratch) + offset_);
}

void StagedTensor::CopyIn(OneDnn& dnn) {
  if (staged_) dnn.Run(in_, outside_, inside_);
}

void StagedTensor::CopyOut(OneDnn& dnn) {
  if (staged_) dnn.Run(out_, inside_, outside_);
}

Primitive::Primitive(const OneDnn& dnn, const dnnl::primitive& primitive,
                     const dnnl::memory::desc& scratchpad,
                     std::unordered_map<int, dnnl::memory> arguments, ScratchLayout& layout)
    : primitive_(primitive), arguments_(std::move(arguments)) {
  has_scratchpad_ = scratchpad.get_size() > 0;
  if (!has_scratchpad_) return;
  offset_ = layout.Add(scratchpad.get_size());
  scratchpad_ = Unbound(dnn, scratchpad);
  arguments_[DNNL_ARG_SCRATCHPAD] = scratchpad_;
}

void Primitive::Execute(OneDnn& dnn, void* scratch) {
  if (has_scratchpad_) SetAddress(scratchpad_, static_cast<float*>(scratch) + offset_);
  dnn.Run(primitive_, arguments_);
}

dnnl::primitive_attr UserScratchpad(bool relu) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops ops;
    // A tiny slope below zero. With slope 0, oneDNN uses the maximum of x and 0, but the CPU's
    // maximum instruction turns NaN into 0, so a diverged network would show a finite loss.
    AppendRelu(ops, std::numeric_limits<float>::min());
    attributes.set_post_ops(ops);
  }
  return attributes;
}

dnnl::memory Unbound(const OneDnn& dnn, const dnnl::memory::desc& desc) {
  return dnnl::memory(desc, dnn.engine, nullptr);
}

bool IsReference(const char* implementation) {
  return std::strstr(implementation, "ref") != nullptr;
}

}  // namespace muster::cpu
