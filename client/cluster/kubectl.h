/* Run kubectl with the cluster of a profile. */
#ifndef GP_CLUSTER_KUBECTL_H
#define GP_CLUSTER_KUBECTL_H

#include "client/cluster/profile.h"
#include "client/cluster/tool.h"
#include "common/base/error.h"
#include "common/base/memory/buffer.h"
#include "common/base/system/timeout.h"

enum {
    KUBECTL_WORDS = 24,
    KUBECTL_OPTIONS = 2,
    KUBECTL_OPTION_BYTES = 300,
    KUBECTL_REPLY_MAX = 4096, /* bytes of a short reply */
};

/* State of one call of an engine function, which may run several commands. */
typedef struct kubectl_call {
    const gp_profile *profile;
    gp_timeout timeout; /* of all commands together */
} kubectl_call;

/* Words of a command line after the options of the profile. */
#define VERB(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* Fill in a command line: kubectl, the options of the profile, and `verb`, which ends with NULL.
 *   options  room for the texts of the options */
void kubectl_words(const char *words[KUBECTL_WORDS], char options[KUBECTL_OPTIONS][KUBECTL_OPTION_BYTES],
                   const gp_profile *profile, const char *const *verb);

/* Run kubectl until it exits.
 *   verb   words after the options of the profile; ends with NULL
 *   input  standard input; NULL: none
 *   out    set on GP_OK; free it with cluster_tool_deinit()
 * GP_OK: exit code 0. GP_EUNSUPPORTED: no kubectl.
 * GP_EBUSY: the object exists. GP_ENOENT: it does not. GP_EPERM: the request was refused, or no
 * connection was made, so it had no effect. GP_EPEER, GP_ETIMEDOUT: it may have had an effect. */
gp_status kubectl(cluster_tool_result *out, const kubectl_call *call, const char *const *verb,
                  const gp_buffer *input, size_t output_max, gp_error *err);

/* Run kubectl for its effect. Errors as for kubectl(). */
gp_status kubectl_do(const kubectl_call *call, const char *const *verb, gp_error *err);

#endif
