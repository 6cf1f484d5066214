/* As if built with a later version. */
#include <stdint.h>

extern const uint32_t gp_task_object_abi;
__attribute__((visibility("default"))) const uint32_t gp_task_object_abi = 99;
