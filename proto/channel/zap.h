/* zap.h -- who may come in: the thread that ZeroMQ asks about every key (ZAP, RFC 27).
 *
 * CURVE proves that the other side has the secret half of its key, no more: without this, any key is let in.  One for the
 * process, opened before any listener is bound: gp_channel_listen() does not do without.  It answers by the list of
 * proto/channel/curve.h, which is read again when the file has changed; a list that cannot be trusted (its mode, its owner, a line
 * that is wrong) lets nobody in.  The User-Id of an admitted link is its key. */
#ifndef GP_ZAP_H
#define GP_ZAP_H

#include "proto/channel/curve.h"

#define GP_ZAP_DOMAIN "gradpool"

typedef struct gp_zap gp_zap;

/* gp_zap_open -- list: path of the list.  When it returns, the thread answers.  GP_EBUSY: the process has one. */
gp_status gp_zap_open(gp_zap **out, const char *list, gp_error *err);
void gp_zap_close(gp_zap *zap); /* accepts NULL; after the last listener */

/* gp_zap_find -- whose key it is, by the list as it is now; false: nobody's (any more), or it is muted. */
bool gp_zap_find(gp_zap *zap, const char *key, gp_allowed *out);

/* gp_zap_mute -- turn this key away for so long: it has offended. */
void gp_zap_mute(gp_zap *zap, const char *key, int ms);

typedef struct gp_zap_stats {
    uint64_t admitted, refused;        /* handshakes, since open; refused: keys not on the list */
    uint64_t muted;                    /* handshakes of keys that had offended */
    uint32_t allowed;                  /* keys on the list */
    char broken[GP_ERROR_MESSAGE_MAX]; /* why the list lets nobody in; "" = it is sound */
} gp_zap_stats;

/* Reads the list again, if it has changed. */
gp_zap_stats gp_zap_get_stats(gp_zap *zap);

/* gp_zap_forgive -- take one refusal out of the count: it was our own test of the door. */
void gp_zap_forgive(gp_zap *zap);

#endif
