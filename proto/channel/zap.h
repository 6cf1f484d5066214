/* Key check for new connections: the thread that answers ZeroMQ's ZAP requests (RFC 27).
 *
 * CURVE alone proves only that the peer owns the secret half of its key; without this check ZeroMQ
 * admits every key. A process has at most one gp_zap, opened before any gp_channel_listen(). It
 * uses the key list in proto/channel/curve.h and reloads it when the file changes. An invalid list
 * (wrong mode or owner, or a malformed line) admits no key. The ZAP User-Id of an admitted link is
 * its public key. */
#ifndef GP_ZAP_H
#define GP_ZAP_H

#include "proto/channel/curve.h"

#define GP_ZAP_DOMAIN "gradpool"

typedef struct gp_zap gp_zap;

/* Start the thread for the key list at path `list`. It is ready when this function returns.
 * GP_EBUSY: this process already has one. */
gp_status gp_zap_open(gp_zap **out, const char *list, gp_error *err);

/* Stop the thread. Accepts NULL. Call it after closing the last listener. */
void gp_zap_close(gp_zap *zap);

/* Look up the owner of a key in the current list. Return false if the key is not on it, or is
 * muted. */
bool gp_zap_find(gp_zap *zap, const char *key, gp_allowed *out);

/* Refuse a key for `ms` milliseconds, after it broke a rule. */
void gp_zap_mute(gp_zap *zap, const char *key, int ms);

/* Counters since gp_zap_open(), and the state of the key list. */
typedef struct gp_zap_stats {
    uint64_t admitted, refused;        /* handshakes; refused: key not on the list */
    uint64_t muted;                    /* handshakes refused because the key is muted */
    uint32_t allowed;                  /* keys on the list */
    char broken[GP_ERROR_MESSAGE_MAX]; /* why the list is invalid; "": it is valid */
} gp_zap_stats;

/* Return the counters; reload the list first if it changed. */
gp_zap_stats gp_zap_get_stats(gp_zap *zap);

/* Subtract one refusal: the self-test of a listener caused it. */
void gp_zap_uncount_refused(gp_zap *zap);

#endif
