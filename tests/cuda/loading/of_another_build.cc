// A stale plugin from before an update of the programs.
extern "C" const char* muster_cuda_plugin_build() { return "0123456789abcdef"; }
