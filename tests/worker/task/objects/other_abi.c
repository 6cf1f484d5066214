/* other_abi.c: an object as a later version would build it. */
#include <stdint.h>

extern const uint32_t gp_task_object_abi;
__attribute__((visibility("default"))) const uint32_t gp_task_object_abi = 99;
