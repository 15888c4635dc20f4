// The interface of a device that runs a network for worker/nn: memory, copies, ordering of work,
// and one op for each layer of the graph.
//
// All backends follow this contract; nn and trainer rely on nothing else. A device works
// asynchronously: all work is queued, and an Event shows when it is done. If the device is the
// host, work is done immediately and nothing is copied (host_backend.h).
//
// Threads: a backend and its ops, events and buffers are used only by the thread that calls Enter.
// Failures: if the device's library does not support a shape, MakeOp throws Error(kFailure); a
// later failure on the device is thrown as an Error by the next call that checks an Event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/element_type.h"
#include "common/base/error.h"
#include "common/graph/graph.h"
#include "common/graph/pixel_scale.h"
#include "worker/backend/image_op.h"
#include "worker/backend/op.h"

namespace muster {

// Each queue runs its work in order. Only Await orders work across queues. kInput prepares batches
// (image_op.h).
enum class Queue { kCompute, kCopyIn, kCopyOut, kInput };

// A position in a queue. The host can check whether the queue has reached it.
class Event {
 public:
  virtual ~Event() = default;
  // Whether everything queued before the last Record is done; true before the first Record. Throws
  // an Error if the device has failed.
  virtual bool IsDone() = 0;
  // Waits until IsDone(), but at most `seconds`. Returns IsDone().
  virtual bool Wait(double seconds) = 0;
};

// Device memory, 64-byte aligned, freed with the object.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() = 0;  // a device address
};

// The device has too little memory: the job must be smaller.
class OutOfDeviceMemory : public Error {
 public:
  using Error::Error;
};

// No worker of this machine can use a GPU: plugin, library, driver or GPU is missing. Only this
// error permits a fallback to the CPU.
class NoGpu : public Error {
 public:
  using Error::Error;
};

// Host memory that is copied repeatedly, from or to the device. It must not share pages with other
// data.
struct HostMemory {
  const char* what;  // "weights", for messages
  const void* begin;
  size_t bytes;
  bool read_only;  // mapped read-only in this process
};

// Keeps host memory registered with the device as long as this object exists.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
};

// Work on kCompute that is queued many times with the same arguments. The device may record it, and
// then queues the recording, which takes the host less time.
class RepeatedWork {
 public:
  virtual ~RepeatedWork() = default;
  // Calls `work`, which queues work on kCompute and does nothing else, or queues what it queued in
  // an earlier call with the same key. `key`: everything that the work depends on and that may
  // differ between calls.
  virtual void Run(std::span<const uint64_t> key, const std::function<void()>& work) = 0;
};

// Memory use of a device with separate memory, in bytes. All values are 0 if the device computes in
// host memory.
struct DeviceMemoryUse {
  size_t held = 0;       // allocated by this process, including the backend's own memory
  size_t most = 0;       // the maximum of `held` so far
  size_t available = 0;  // what this process could still allocate
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Called first whenever the tower starts to work. The calling thread is the compute thread.
  virtual void Enter() = 0;
  // The type of activations and their gradients. Variables and their gradients are always floats.
  virtual ElementType activation_type() const = 0;
  // The type of the logits that a dense layer makes, and of their gradients. In 16 bits two logits
  // are often equal, and equal logits count as a wrong prediction.
  virtual ElementType logits_type() const { return activation_type(); }

  // Memory. If the device computes in host memory, host addresses are device addresses, and nothing
  // is copied. Otherwise the host never accesses device memory (see worker/nn/device_view.h).
  virtual bool shares_host_memory() const = 0;
  // Throws Error(kFailure) with the requested and the available size.
  virtual std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) = 0;
  virtual DeviceMemoryUse memory_use() const = 0;
  // The PCI address of the GPU, "0000:3b:00.0"; "" if the device is no GPU.
  virtual std::string pci_bus_id() const { return ""; }
  // Returns a handle with which the relay of this host can read the buffer (gpu_adder.h), or "" if
  // the device has none.
  virtual std::string Export(DeviceBuffer&) { return ""; }
  // Lets the device lock the memory's pages. Returns null if the device does not need or cannot do
  // this; copies work anyway.
  virtual std::unique_ptr<HostRegistration> Register(const HostMemory& memory) = 0;
  // Copies to the device on kCopyIn, and from it on kCopyOut. The host's memory must stay valid
  // until the copy is done.
  virtual void CopyIn(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, size_t bytes) = 0;

  // Ordering.
  virtual std::unique_ptr<Event> MakeEvent() = 0;
  // Sets the event to the current end of the queue.
  virtual void Record(Queue queue, Event& event) = 0;
  // Makes all work added to the queue from now on wait for the event as last recorded.
  virtual void Await(Queue queue, Event& event) = 0;
  // Waits until all queues are empty. Called before memory that they use is freed. Does not throw.
  virtual void Drain() = 0;

  // Returns null if the device does not record work.
  virtual std::unique_ptr<RepeatedWork> MakeRepeatedWork() { return nullptr; }

  virtual std::unique_ptr<WeightLayouts> MakeWeightLayouts() = 0;
  // Makes the op of any layer except flatten (which moves no data) and the loss.
  virtual std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) = 0;
  // If the device has several convolution algorithms, which differ in bits, returns one line that
  // lists the algorithm of each op made so far. Otherwise returns an empty string.
  virtual std::string Convolutions() const { return ""; }
  // Returns null if batches are prepared on the host.
  virtual std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe&) { return nullptr; }

  // The following functions queue their work on kCompute.
  virtual void Zero(void* to, size_t bytes) = 0;
  // Converts images, which are floats on the host.
  virtual void ToActivations(void* to, const float* from, int64_t count) = 0;
  // Makes activations of images that are bytes, [pixel][channel]. Only if the device has its own
  // memory: batches in host memory are floats.
  virtual void ScalePixels(void* to, const uint8_t* from, int64_t count,
                           const PixelScale& scale) = 0;
  // Writes the mirror image (left and right exchanged) of each of `count` images, which have this
  // shape and activation_type().
  virtual void MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) = 0;
  // logits = (logits + others) / 2.
  virtual void AverageLogits(ElementType type, void* logits, const void* others, int64_t count) = 0;
  // to = a + b, or a if b is null; zero where relu_output is given and not above zero. All arrays
  // are of activation_type(); `to` may be a or b.
  virtual void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                            int64_t count) = 0;
  // Round and sum the gradients of variables over slices. Each gradient and each sum is rounded as
  // for sending to the server (RoundTo and AddRounded in common/base/element_type.h).
  virtual void RoundSlice(ElementType wire, float* values, size_t count) = 0;
  virtual void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                         size_t count) = 0;
};

// Drains the backend at the end of a scope, even after an exception.
struct DrainAtExit {
  Backend& backend;
  ~DrainAtExit() { backend.Drain(); }
};

}  // namespace muster
