// What a device must offer so that worker/nn can run a network on it: memory, copies, an order of
// work, and one op for each layer of the graph.
//
// Backends are twins: each honours all of this, and neither nn nor trainer knows of any other
// difference. A device works on its own while the host goes on: whatever is asked of it is queued,
// and an Event says when it is done. Where the device is the host, all of it is done at once, and
// copies are none (host_backend.h).
//
// Owner and thread: a backend, its ops, events and buffers are used by one thread, the one that
// calls Enter. Failures: a shape that the device's library cannot do is an Error (kFailure) from
// MakeOp; what fails later, on the device, is an Error from the next call that looks at an Event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/element_type.h"
#include "common/base/error.h"
#include "common/graph/graph.h"
#include "worker/backend/image_op.h"
#include "worker/backend/op.h"

namespace muster {

// Each does what it was given in that order. Between queues there is no order but what Await makes.
// kInput: what makes batches (image_op.h).
enum class Queue { kCompute, kCopyIn, kCopyOut, kInput };

// A place in a queue. The host asks whether the queue has come that far.
class Event {
 public:
  virtual ~Event() = default;
  // Whether all that was queued before the last Record is done; true before the first. Throws what
  // failed on the device.
  virtual bool IsDone() = 0;
  // Waits for that, up to `seconds`. Returns IsDone().
  virtual bool Wait(double seconds) = 0;
};

// Memory of the device, 64-byte aligned, freed with the object.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() = 0;  // a device address
};

// The device has too little memory: the job has to be smaller.
class OutOfDeviceMemory : public Error {
 public:
  using Error::Error;
};

// No worker of this machine can use a GPU: there is no plugin, no library, no driver or no GPU.
// Only this is a reason to compute on the CPU instead.
class NoGpu : public Error {
 public:
  using Error::Error;
};

// Host memory that is copied from, or to, again and again: it has its pages for itself.
struct HostMemory {
  const char* what;  // "weights", for people
  const void* begin;
  size_t bytes;
  bool read_only;  // this process has it mapped for reading alone
};

// Such memory is known to the device as long as this object is there.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
};

// Memory of a device with its own memory, in bytes. All 0 if the device computes in host memory.
struct DeviceMemoryUse {
  size_t held = 0;       // allocated by this process, for the backend itself too
  size_t most = 0;       // that it ever held
  size_t available = 0;  // that it could still get
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Called first whenever the tower starts to work: the calling thread is the one that computes.
  virtual void Enter() = 0;
  // The type of activations and their gradients. Variables and their gradients are floats, and so
  // is everything on a device that computes in host memory.
  virtual ElementType activation_type() const = 0;

  // Memory. If the device computes in the host's memory, a host address is a device address, and
  // nobody copies. Otherwise the host never looks at device memory: worker/nn/device_view.h.
  virtual bool shares_host_memory() const = 0;
  // Throws Error(kFailure) that says how much was asked for and how much there is.
  virtual std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) = 0;
  virtual DeviceMemoryUse memory_use() const = 0;
  // A device may want its pages locked. Null where it does not, or cannot: copies work all the
  // same.
  virtual std::unique_ptr<HostRegistration> Register(const HostMemory& memory) = 0;
  // To the device, on kCopyIn, and from it, on kCopyOut. The host's memory must stay until done.
  virtual void CopyIn(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, size_t bytes) = 0;

  // Order.
  virtual std::unique_ptr<Event> MakeEvent() = 0;
  // The event is now the place in this queue after all that was queued so far.
  virtual void Record(Queue queue, Event& event) = 0;
  // What this queue is given from now on begins when the event, as last recorded, is done.
  virtual void Await(Queue queue, Event& event) = 0;
  // Waits until all queues are empty, before memory goes that they use. Throws nothing.
  virtual void Drain() = 0;

  virtual std::unique_ptr<WeightLayouts> MakeWeightLayouts() = 0;
  // Any layer but flatten (which moves nothing) and the loss.
  virtual std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) = 0;
  // Which way each convolution of the ops made so far goes, in one line, where the device has
  // several: other ways give other bits. Empty where it has one.
  virtual std::string Convolutions() const = 0;
  // Null where batches are made at the host.
  virtual std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe) = 0;

  // All of these on kCompute.
  virtual void Zero(void* to, size_t bytes) = 0;
  // Images, which the host has as floats.
  virtual void ToActivations(void* to, const float* from, int64_t count) = 0;
  // to = a + b, or a where b is null; zero where relu_output is given and not above zero. All of
  // activation_type(); `to` may be a or b.
  virtual void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                            int64_t count) = 0;
  // Gradients of variables, added up over slices; each and each sum is rounded as it would be on
  // its way to the server: RoundTo and AddRounded of common/base/element_type.h.
  virtual void RoundSlice(ElementType wire, float* values, size_t count) = 0;
  virtual void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                         size_t count) = 0;
};

// Drains at the end of a scope, also if that is left by an exception.
struct DrainAtExit {
  Backend& backend;
  ~DrainAtExit() { backend.Drain(); }
};

}  // namespace muster
