"""Top k: the best scores of every game, in Arrow, many games at a time."""

import holdfast as hf

K = 3


def best_scores(rows, states):
    """Put the new scores beside the old ones, and keep the best."""
    import pyarrow as pa

    old = dict(zip(states["game"].to_pylist(), states["best"].to_pylist(), strict=True))
    new = rows.group_by("game").aggregate([("score", "list")])
    games = new["game"].to_pylist()
    best = [
        sorted([*(old[game] or []), *scores], reverse=True)[:K]
        for game, scores in zip(games, new["score_list"].to_pylist(), strict=True)
    ]
    table = pa.table({"game": games, "best": pa.array(best, pa.list_(pa.int64()))})
    return table, table


def top_scores(scores):
    """Take (game string, score long); give the best of every game with new scores."""
    return hf.group_by(scores, "game").apply_arrow(
        best_scores, output="game string, best array<long>", state="best array<long>"
    )


def main(spark, folder, checkpoint):
    """Follow a folder of JSON files and show the best scores."""
    scores = spark.readStream.schema("game string, score long").json(folder)
    query = top_scores(scores).writeStream.format("console").option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    import sys

    from pyspark.sql import SparkSession

    main(SparkSession.builder.getOrCreate(), *sys.argv[1:])
