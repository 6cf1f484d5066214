/* functions.h: task objects sent to the workers of a team, and the functions found in them. */
#ifndef GP_TEAM_FUNCTIONS_H
#define GP_TEAM_FUNCTIONS_H

#include "client/team/calls.h"

struct team_object;
struct function_entry;

/* Objects and functions of one team. Initialize with zeros. */
typedef struct team_functions {
    struct team_object *objects;
    struct function_entry *entries;
    uint32_t object_count; /* includes rejected objects: numbers are not reused */
    uint32_t count;
} team_functions;

/* Return the error of a worker that rejected the function or its object. GP_OK: none did so far. */
gp_status function_check(const gp_function *function, gp_error *err);
void functions_deinit(team_functions *functions);

/* A function by its contents, for another process. */
typedef struct function_origin {
    const char *name;      /* without the file */
    const uint8_t *sha256; /* of the task object, 32 bytes */
    int fd;                /* the object, in a memory file of the team */
    size_t bytes;
} function_origin;

/* Find the function with that number. false: the team has none. */
bool function_find_origin(function_origin *out, const team_functions *functions, uint32_t number);

#endif
